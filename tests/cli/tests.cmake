# cli.*: the built tool, from outside.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
function(locus_cli_test file)
  foreach(suite IN LISTS ARGN)
    add_test(NAME cli.${suite} COMMAND Python3::Interpreter
      ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${file}.py $<TARGET_FILE:locus_cli>
      ${suite})
    set_tests_properties(cli.${suite} PROPERTIES LABELS cli)
  endforeach()
endfunction()
locus_cli_test(cli_test List Show Files Check Errors Pipes)
locus_cli_test(outputs_test Outputs Interrupted Terminal Streams Prompt)
locus_cli_test(bench_test Bench)
