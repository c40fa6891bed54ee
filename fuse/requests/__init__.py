"""How the kernel's requests are taken and answered, whatever they ask for."""
