"""Several ranks as one run: the engine that carries their messages, and bulk data beside it."""
