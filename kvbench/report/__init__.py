"""A run told to people: pure view, thin shells around it (charts, HTML, PDF, Markdown, JSON, CSV)."""
