"""The network: one HTTP client with its tokens, redirects and retries, and the services karat asks through it."""
