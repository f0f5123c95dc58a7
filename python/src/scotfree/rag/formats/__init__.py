"""What files are written in: of each format a module that makes text of its bytes, with an outline."""
