"""Values of the bus: envelopes, addresses, agents, delivery states and their text forms. Pure."""
