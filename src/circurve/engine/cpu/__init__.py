"""The tuned path for latent trees on a CPU: messages in linear space, factors as tables, nothing gathered."""
