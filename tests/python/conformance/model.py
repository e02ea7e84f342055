"""The oracle: what a store must hold after the answers that its clients have had, kept in memory."""


class Model:
    """The items of one tenant. An item is one of several things while the outcome of a request is not known."""

    def __init__(self, tenant):
        self.tenant = tenant
        # For each number the texts that may be there; None is that there is no such item.
        self._possible = {}
        # Numbers whose last request was acknowledged and that are there, in the order of writing.
        self.present = []

    def begin(self, number, text):
        """A request that makes the item `text`, or removes it, is sent: until its answer, the old may be there too."""
        self._possible[number] = self._possible.get(number, {None}) | {text}
        if number in self.present:
            self.present.remove(number)

    def acknowledge(self, number, text):
        """The request was answered with success."""
        self._possible[number] = {text}
        if text is not None:
            self.present.append(number)

    def copy(self):
        """The same, as it is now."""
        copy = Model(self.tenant)
        copy._possible = {number: set(texts) for number, texts in self._possible.items()}
        copy.present = list(self.present)
        return copy

    def check(self, texts, look_max=None):
        """Fails unless these are the tenant's items; with `look_max`, unless they are so many of them."""
        found = {}
        for text in texts:
            tenant, number, _ = text.split("/", 2)
            assert tenant == str(self.tenant), f"tenant {self.tenant} is shown {text!r} of another tenant"
            assert int(number) not in found, f"doubled: {found[int(number)]!r} and {text!r}"
            found[int(number)] = text
        for number, text in found.items():
            possible = self._possible.get(number, {None})
            assert text in possible, f"{text!r} is there and should be one of {possible}"
        # An item whose removal was acknowledged has no other possibility than None, and would have failed above.
        certain = [number for number, possible in self._possible.items() if None not in possible]
        if look_max is None:
            lost = [self._possible[number] for number in certain if number not in found]
            assert not lost, f"acknowledged and gone: {len(lost)} of {len(certain)} items, first {lost[:3]}"
        else:
            assert len(found) >= min(look_max, len(certain)), f"{len(found)} of {len(certain)} items are shown"
