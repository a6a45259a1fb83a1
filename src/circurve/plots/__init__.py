"""Pictures: records and arrays -> matplotlib figures. Nothing here computes, and nothing here writes files."""
