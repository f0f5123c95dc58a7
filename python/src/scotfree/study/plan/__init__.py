"""What a remedy would leave of a user's own calls: forecasts, the fits they rest on, the size of a device."""
