"""How fast this machine is: what ``replay`` and ``plan`` otherwise have to assume."""
