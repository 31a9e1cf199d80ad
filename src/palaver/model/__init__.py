"""What flows: envelopes, addresses, agents, delivery states and the forms they are written in. Pure."""
