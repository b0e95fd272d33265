"""Worker processes: where they are placed, how they are called and waited for, what surrounds each, how it ends."""
