"""``paddle.dataset``: readers of well-known data sets from local files; nothing is downloaded.

* ``common``  where the files are expected, and how archives are read
* ``mnist``, ``cifar``  images; also ``vision.datasets``
* ``folder``  images in folders
* ``uci_housing``, ``movielens``  tables; also ``text``
* ``imdb``, ``imikolov``, ``conll05``, ``wmt14``, ``wmt16``  texts; also ``text``
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(
    __name__, modules="cifar common conll05 folder imdb imikolov mnist movielens uci_housing wmt14 wmt16"
)
