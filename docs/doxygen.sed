# For Doxygen: comments of headers are `//`, before a declaration or after it.
# Rules between sections are no documentation.
s,^// -{5}.*,,
s,^( *)//( |$),\1///\2,
s,([;{(]|\,) +// ,\1  ///< ,
# No commands of Doxygen in them.
\,///,s,[\\@],\\&,g
\,^ *///,s,#,\\#,g
# The comment at the top is about the file.
1s,^///,/// \\file\n///,
