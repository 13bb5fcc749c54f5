from paddock.api.errors import RankFailedError as RankFailedError
from paddock.api.errors import RunFailedError as RunFailedError
from paddock.api.job import explain as explain
from paddock.api.job import make_job as make_job
from paddock.api.launch import launch as launch
from paddock.api.ranks import attempt as attempt
from paddock.api.ranks import is_first as is_first
from paddock.api.ranks import local_rank as local_rank
from paddock.api.ranks import rank as rank
from paddock.api.ranks import should_stop as should_stop
from paddock.api.ranks import world_size as world_size
from paddock.api.run import Run as Run
from paddock.api.submit import submit as submit
from paddock.api.sweep import sweep as sweep
from paddock.core.job import Job as Job
from paddock.core.plan import Plan as Plan
from paddock.errors import PaddockError as PaddockError
from paddock.errors import UsageError as UsageError
from paddock.watch.rank import report as report

__version__: str
