"""The pages of `paddock web` and `paddock report`: HTML made here, by templates of this package.

app        the server: pages by address, and what is left of a request once guard has let it in
guard      who may ask: the token, its cookie, Host and Origin; headers that forbid the rest
texts      the pages in Chinese: chinese.txt, and which language a reader gets
pages      templates, filled for the server or for a file that is a report
runs       runs and their states, histories and servers, kept as long as they are true
loglines   log lines: made harmless, folded; a window of a log
follow     the newest lines of a log that grows, shared by all who look at it
"""
