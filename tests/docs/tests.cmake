# docs.*: the documents agree with the library, the tool and the tree.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(docs_tests ${CMAKE_CURRENT_LIST_DIR})
set(docs_pages ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/docs/encodings.md)

add_test(NAME docs.commands COMMAND Python3::Interpreter
  ${docs_tests}/commands.py ${PROJECT_SOURCE_DIR})
add_test(NAME docs.promises COMMAND Python3::Interpreter
  ${docs_tests}/promises.py ${PROJECT_SOURCE_DIR})
set_tests_properties(docs.commands docs.promises PROPERTIES LABELS docs)

if(TARGET locus_cli)
  add_test(NAME docs.tables COMMAND Python3::Interpreter
    ${docs_tests}/encodings_table.py ${PROJECT_SOURCE_DIR} $<TARGET_FILE:locus_cli>)
  add_test(NAME docs.console COMMAND Python3::Interpreter
    ${docs_tests}/console.py $<TARGET_FILE:locus_cli> ${docs_pages})
  set_tests_properties(docs.tables docs.console PROPERTIES LABELS docs)
endif()

# The constructions of docs/encodings.md, compiled and run.
set(docs_snippets ${CMAKE_CURRENT_BINARY_DIR}/docs_snippets.cc)
add_custom_command(OUTPUT ${docs_snippets}
  COMMAND Python3::Interpreter ${docs_tests}/snippets.py
    ${PROJECT_SOURCE_DIR}/docs/encodings.md ${docs_snippets}
  DEPENDS ${docs_tests}/snippets.py ${PROJECT_SOURCE_DIR}/docs/encodings.md
  VERBATIM)
add_executable(docs_snippets ${docs_snippets})
target_link_libraries(docs_snippets PRIVATE locus locus_build)
add_test(NAME docs.snippets COMMAND docs_snippets)
set_tests_properties(docs.snippets PROPERTIES LABELS docs)

# Parts of programs that other pages show: compiled.
set(docs_pages_cpp models.md kernels.md)
if(LOCUS_RING)
  list(APPEND docs_pages_cpp scale.md)
endif()
list(TRANSFORM docs_pages_cpp PREPEND ${PROJECT_SOURCE_DIR}/docs/ OUTPUT_VARIABLE docs_files_cpp)
set(docs_fragments ${CMAKE_CURRENT_BINARY_DIR}/docs_fragments.cc)
add_custom_command(OUTPUT ${docs_fragments}
  COMMAND Python3::Interpreter ${docs_tests}/fragments.py
    ${PROJECT_SOURCE_DIR}/docs ${docs_fragments} ${docs_pages_cpp}
  DEPENDS ${docs_tests}/fragments.py ${docs_files_cpp}
  VERBATIM)
add_library(docs_fragments OBJECT ${docs_fragments})
target_link_libraries(docs_fragments PRIVATE locus locus_build)
target_compile_options(docs_fragments PRIVATE -O0 -Wno-unused -Wno-unused-parameter)
if(LOCUS_RING)
  target_link_libraries(docs_fragments PRIVATE locus_ring)
endif()

# The walk from an idea to a figure.
if(TARGET locus_compare AND TARGET _locus)
  add_test(NAME docs.walk COMMAND ${Python_EXECUTABLE} -B ${docs_tests}/walk.py
    ${PROJECT_SOURCE_DIR} $<TARGET_FILE:locus_cli>)
  set_tests_properties(docs.walk PROPERTIES LABELS docs TIMEOUT 600
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python")
endif()

# The site: made, and every link and anchor of it leads somewhere.
add_test(NAME docs.site COMMAND ${docs_tests}/site.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(docs.site PROPERTIES LABELS docs TIMEOUT 600
  PASS_REGULAR_EXPRESSION "pages, [0-9]+ links, 0 broken")
