"""Storage of summaries: segments, versions, the cursor, and calibrations of token counts per model."""
