"""Everything durable: streams, observations with outputs, events, snapshots, tokens, webhooks."""
