"""The contract attacked: lost replies, scripts that are gone, slots that move, fail-overs, races."""
