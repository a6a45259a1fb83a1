"""The tuned path for latent trees on a CPU, with the answers of the reference backend.

Four things make it fast: messages in linear space instead of logs, factors tabulated by the joint states of a few
variables, memory laid out so that nothing is gathered, and rows of a length that suits the caches.
"""
