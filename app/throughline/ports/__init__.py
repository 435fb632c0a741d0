"""What the rooms below the doors need from outside, as Protocols; the adapters fulfil them, `assembly/` joins them."""
