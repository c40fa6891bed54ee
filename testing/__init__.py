"""What tests need, ours and yours: stores that count, wait and fail by rule, clocks that tests move, and whole
deployments, simulated."""
