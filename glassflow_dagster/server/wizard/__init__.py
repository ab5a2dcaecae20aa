"""Makes a new pipeline step by step: what is asked, what an answer means, and the definition that follows.

Two front ends ask the questions: the page (`ui/`) and the command `new`. Neither knows what a definition looks like;
a finished one is given to `api.pipelines.Pipelines.create`, as a definition that the HTTP API receives.
"""
