"""One program for each client; they run in the clients' own environments (`make clients-env`)."""
