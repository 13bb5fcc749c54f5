"""The commands: parse, then import only what was chosen.

``checks/`` has the programs that ranks of ``check`` and ``debug`` run.

main                              the first argument, and the import of its command
family, help, completion          tables of commands and their parsing; help; shell completion
launch, warm_daemon, warm         ``paddock launch``; its daemon (--warm keep); ``paddock warm``
debug                             ``paddock debug``: one rank under pdb or an editor's debugger
explain                           ``paddock explain``: the plan of a job as text and JSON
explain_kubernetes, operator      the objects of a PaddleJob; install and run the operator
submit, jobs, job_status, rerun   submit a job; list, stop, fetch runs; their status; rerun
sweep                             the runs of a grid
watch, top, top_app               stacks and bill of a run; the live board, plain and with textual
web                               see runs in a browser, or as one file
ps, ps_text                       parameter servers: query and control; texts
pserver                           run a parameter server
data, data_text                   training data: generate, split, check, plan
rec                               recommendation models
init                              ``paddock init``: look for sites, ask, write paddock.toml
check, version                    a smoke test, one all-reduce; installed versions
"""
