"""What a machine is made of: devices, file systems, ports, and the tools that tell of them."""
