"""Recorded traffic against limits, in driven time: an hour passes in a second."""
