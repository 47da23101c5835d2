"""One report kit that knows no domain: words, terminal, Markdown, HTML, JSON and its schemas, JUnit, GitHub, SARIF."""
