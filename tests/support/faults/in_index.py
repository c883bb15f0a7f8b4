"""What is held, and what of it goes first."""

from faults.fault import Fault

IN_INDEX = (
    Fault(
        "a newcomer comes into every shadow",
        "index/policies/shadow.py",
        "if self._is_selective and not end.children",
        "if False and not end.children",
    ),
    Fault(
        "replaced checkpoints go first under every order",
        "index/eviction.py",
        "return self.live.superseded_first",
        "return True",
    ),
    Fault(
        "a shadow is believed whatever comes true",
        "index/policies/judge.py",
        "num * trust[name] for",
        "num for",
    ),
    Fault(
        "an order answers for what another one kept",
        "index/policies/judge.py",
        "if last_use >= self._followed_since:",
        "if True:",
    ),
    Fault(
        "checkpoints cost LHD nothing",
        "index/policies/lhd.py",
        "if not self._checkpoint_chunks:",
        "if True:",
    ),
    Fault(
        "LHD never lets the latest used go",
        "index/policies/by_age.py",
        "oldest, newest = entries[self._first][3], entries[-1][3]",
        "oldest = newest = entries[self._first][3]",
    ),
    Fault(
        "what was known below a branch is known of the other one",
        "index/ghosts.py",
        "if num_known == len(sampled) or sampled[num_known] != key:",
        "if num_known == len(sampled):",
    ),
    Fault(
        "chunks join an entry of before a whole path has gone",
        "index/ghosts.py",
        "        self._latest = None  # what goes next goes after these\n",
        "",
    ),
    Fault(
        "what is worth more goes for a newcomer",
        "index/newcomers.py",
        "        order.add(part)\n",
        "",
    ),
    Fault(
        "what a newcomer hangs on may go for it",
        "index/newcomers.py",
        "        index.pin(tip)\n",
        "        tip.pins += 1\n",
    ),
    Fault(
        "the use of what is turned away is forgotten",
        "index/newcomers.py",
        "        if admitted < num_chunks:\n",
        "        if False:\n",
    ),
    Fault(
        "what is turned away again is remembered twice",
        "index/newcomers.py",
        "        ghosts.all_return(keys, parts[0].start)\n",
        "",
    ),
    Fault(
        "the use of what comes in counts twice",
        "index/newcomers.py",
        "ghosts.all_leave(keys, part.start, cut, part.known, most)",
        "ghosts.all_leave(keys, part.start, cut, part.past(), most)",
    ),
    Fault(
        "a part of a prompt comes in at whose end nobody can resume",
        "index/newcomers.py",
        "        if self._index.rules.is_overwritten:\n            return part.start\n",
        "",
    ),
    Fault(
        "a prompt with a state is worth what its beginning is",
        "index/newcomers.py",
        "num_chunks, self._known_of_end(parts))]",
        "num_chunks, parts[0].known)]",
    ),
    Fault(
        "an end that is never remembered is new for ever",
        "index/newcomers.py",
        "return end.known if is_sampled else parts[-2].known",
        "return end.known",
    ),
    Fault(
        "what comes in late was used when it came",
        "index/evictable.py",
        "return self.last_use if self.latest == NEVER else self.latest",
        "return self.last_use",
    ),
    Fault(
        "a part counts no prompt that ends deeper",
        "index/newcomers.py",
        "for depth, time in newcomer.uses if depth >= self.depth]",
        "for depth, time in newcomer.uses if depth == self.depth] or [0.0]",
    ),
    Fault(
        "parts are not cut where prompts end",
        "index/newcomers.py",
        "ends = {len(keys), *(depth for depth, _ in newcomer.uses)}",
        "ends = {len(keys)}",
    ),
    Fault(
        "shadows of lazy mode let in everything",
        "index/policies/lazy_shadow.py",
        "        self._waiting: OrderedDict[bytes, _Waiting] = OrderedDict()\n",
        "        self._waiting = OrderedDict()\n        self._is_selective = False\n",
    ),
    Fault(
        "uses that the device serves count as earned",
        "index/policies/reuse.py",
        "is_earned=run.depth > num_local",
        "is_earned=True",
    ),
    Fault(
        "head-first eviction",
        "index/eviction.py",
        "            and node.is_leaf\n",
        "",
    ),
    Fault(
        "ready before its ancestors",
        "index/index.py",
        "if node.parent.state is READY:\n                    self._make_ready",
        "if True:\n                    self._make_ready",
    ),
    Fault(
        "cell freed while a neighbour still shares it",
        "index/cell_store.py",
        "            if cell.refs == 0:",
        "            if cell.refs <= 1:",
    ),
    Fault(
        "reset lets old jobs publish",
        "index/holdings.py",
        "                node.move_to(EVICTING)\n",
        "                node.move_to(EVICTING)\n"
        "                node.state = STORING\n",
    ),
    Fault(
        "bytes under way are borrowed",
        "index/cell_store.py",
        "if cell is None or cell.is_lost or not cell.has_landed:",
        "if cell is None or cell.is_lost:",
    ),
    Fault(
        "a policy forgets what a child was used for",
        "index/holdings.py",
        "parent.take_over(leaf)",
        "parent.last_use = max(parent.last_use, leaf.last_use)",
    ),
    Fault(
        "leased leaf may go",
        "index/eviction.py",
        "and node not in self._leased",
        "and True",
    ),
    Fault(
        "each lease alone within the share",
        "index/leases.py",
        "if self.used_bytes + num_bytes > self._most_bytes",
        "if num_bytes > self._most_bytes",
    ),
    Fault(
        "tenant gets nothing back",
        "index/cell_store.py",
        "tenant.used_bytes -= self.cell_bytes(cell.position)",
        "tenant.used_bytes -= 0",
    ),
    Fault(
        "block taken back that was never announced",
        "index/cell_store.py",
        "if cell.is_announced and self.announcements is not None:",
        "if self.announcements is not None:",
    ),
)
