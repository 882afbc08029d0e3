"""Maps by Levenberg-Marquardt."""
