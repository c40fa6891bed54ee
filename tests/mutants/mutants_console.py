"""Mutants of the node's pages, and of what they show of the store: surveys, plans, heat."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SURVEYS: Final = "tests/integration/test_surveys.py"
HEAT: Final = "tests/unit/test_read_heat.py"
WORKERS: Final = "tests/integration/test_workers.py"
COLLECTION: Final = "tests/integration/test_collection.py"
CONSOLE: Final = "tests/integration/test_console.py"

MUTANTS: Final = (
    Mutant(
        "console: what a database says is markup",
        "server/console/console.py",
        "            autoescape=True,\n",
        "            autoescape=False,\n",
        (CONSOLE, "-k", "each_view or rows_of"),
    ),
    Mutant(
        "console: a text that isn't valid fails the node",
        "server/query_plan.py",
        "    except UnicodeDecodeError:\n        columns",
        "    except UnicodeEncodeError:\n        columns",
        (CONSOLE, "-k", "is_none"),
    ),
    Mutant(
        "console: whoever asks for a page sees it",
        "server/http/access_control.py",
        "or (path.startswith(PAGES) and path not in _OPEN_PAGES)",
        "or False",
        (CONSOLE, "-k", "nothing_without"),
    ),
    Mutant(
        "console: a call takes a browser's cookie",
        "server/http/access_control.py",
        '    if given or not scope["path"].startswith(PAGES):\n',
        "    if given:\n",
        (CONSOLE, "-k", "nothing_without"),
    ),
    Mutant(
        "console: another site's form logs in",
        "server/http/access_control.py",
        '        if not _is_guarded(scope) and scope["path"] != LOGIN:\n',
        "        if not _is_guarded(scope):\n",
        (CONSOLE, "-k", "nothing_without"),
    ),
    Mutant(
        "console: a table is whatever is called so",
        "server/console/console.py",
        "            if wanted not in {row[0] for row in found}:\n",
        "            if False:\n",
        (CONSOLE, "-k", "is_said"),
    ),
    Mutant(
        "console: a survey for each who asks",
        "server/upkeep/surveys.py",
        "        if self._under_way is None and self._now_ms()",
        "        if self._now_ms()",
        (SURVEYS,),
    ),
    Mutant(
        "console: a survey that failed takes away what was known",
        "server/upkeep/surveys.py",
        "            self._last = msgspec.structs.replace(self._last, problem=str(error))\n",
        "            self._last = StoreCosts(problem=str(error))\n",
        (SURVEYS,),
    ),
    Mutant(
        "console: a damaged log hides the others",
        "server/upkeep/shared_logs.py",
        "    except BudwoodError as error:\n        return msgspec",
        "    except KeyError as error:\n        return msgspec",
        (SURVEYS,),
    ),
    Mutant(
        "console: heat never cools",
        "server/pagestore/read_heat.py",
        "            self._halved_ms += times * HALVED_MS\n",
        "            return\n",
        (HEAT,),
    ),
    Mutant(
        "console: heat of any volume grows for ever",
        "server/pagestore/read_heat.py",
        "        while len(self.counts) > MOST_BLOCKS:\n",
        "        while not self.counts:\n",
        (HEAT,),
    ),
    Mutant(
        "console: heat of one worker is taken for all",
        "server/http/whole_node.py",
        "        return summed_heat([own, *",
        "        return own or summed_heat([own, *",
        (WORKERS,),
    ),
    Mutant(
        "console: each worker surveys the store",
        "server/http/whole_node.py",
        "        elif call.name == STORE_COSTS.name and self.share.number != 1:\n",
        "        elif call.name == STORE_COSTS.name and not self.share.number:\n",
        (WORKERS,),
    ),
    Mutant(
        "console: a plan is due as soon as it stands",
        "server/upkeep/collector.py",
        "            return plan, self._due_ms(parse_due(",
        "            return plan, 0 * self._due_ms(parse_due(",
        (COLLECTION, CONSOLE),
    ),
)
