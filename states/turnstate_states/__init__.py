"""The pure part of turnstate. Import it as :mod:`turnstate.states`."""
