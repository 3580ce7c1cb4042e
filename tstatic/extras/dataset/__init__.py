"""``paddle.dataset``: readers of well-known data sets from local files; nothing is downloaded.

* ``common``  where the files are expected, and how archives are read
* ``mnist``, ``cifar``, ``flowers``, ``voc2012``  images; also ``vision.datasets``
* ``folder``  images in folders
* ``image_files``  the package that reads images, and their form; also ``vision``
* ``uci_housing``, ``movielens``  tables; also ``text``
* ``imdb``, ``imikolov``, ``conll05``, ``wmt14``, ``wmt16``  texts; also ``text``
"""

from tstatic.ir.export import facade

__getattr__, __dir__ = facade(
    __name__,
    modules="cifar common conll05 flowers folder imdb imikolov mnist movielens uci_housing voc2012 wmt14 wmt16",
)
