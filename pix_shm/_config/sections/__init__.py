"""The typed sections of ``pix.json``: their models, the rules of their fields, their handles."""
