# cli.*: the built tool, from outside.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(suite IN ITEMS List Show Files Bench Check Errors Pipes)
  add_test(NAME cli.${suite} COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_LIST_DIR}/cli_test.py $<TARGET_FILE:locus_cli> ${suite})
  set_tests_properties(cli.${suite} PROPERTIES LABELS cli)
endforeach()
