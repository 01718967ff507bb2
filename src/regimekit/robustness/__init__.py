"""What a setting promises: how soon a change is told, which bursts are ignored."""
