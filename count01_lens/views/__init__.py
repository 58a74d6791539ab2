"""Everything people look at: figures, pages, attention, the report, the notebook panel."""
