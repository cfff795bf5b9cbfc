"""Lives through hours of conversation in virtual time, with real cores and virtual people, networks and models."""
