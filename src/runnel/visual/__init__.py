"""One visual language for the console and for reports: colours, styles, and charts as SVG. Without I/O."""
