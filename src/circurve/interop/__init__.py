"""Circuits from and for other libraries; each is imported only when asked for."""
