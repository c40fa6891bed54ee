"""What tests need, ours and yours: stores that count, wait and fail by rule, and clocks that tests move."""
