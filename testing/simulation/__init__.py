"""Whole deployments on a simulated clock, network and store, decided by one seed: schedule.py is where to begin."""
