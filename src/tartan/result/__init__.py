"""What a user holds of a run: its matrix, its pairs, its analyses and conversions. Computes no pair."""
