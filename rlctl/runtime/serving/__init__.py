"""The OpenAI API in front of rollout engines, for agent programs and for users.

protocol.py    requests and answers of the API as records, without a server
connections.py how many clients there may be, and for how long without a request
http.py        the routes, on aiohttp; who may call and what generates is a ``Caller``'s business
chat.py        conversations to tokens and generations to messages, with the run's chat template and tool format
"""
