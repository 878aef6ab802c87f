# For Doxygen: comments of headers are `//`, before a declaration or after it.
s,^( *)//( |$),\1///\2,
s,([;{(]|\,) +// ,\1  ///< ,
# No commands of Doxygen in them.
\,///,s,[\\@],\\&,g
