"""Attacks with random input that run for as long as they are let: ``make fuzz``."""
