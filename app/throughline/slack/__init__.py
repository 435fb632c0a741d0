"""The Slack door: takes messages from Slack, delivers answers to it, and answers `/agent`."""
