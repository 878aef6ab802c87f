# Checks of the whole tree as tests: format, lint, arrows between rooms, clean
# text, and the tests once more under sanitizers (compiled by clang++).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(checks ${CMAKE_CURRENT_LIST_DIR}/checks)

add_test(NAME check.format COMMAND ${PROJECT_SOURCE_DIR}/tools/format.sh)
add_test(NAME check.includes
  COMMAND Python3::Interpreter ${checks}/includes.py ${PROJECT_SOURCE_DIR})
add_test(NAME check.clean_text
  COMMAND Python3::Interpreter ${checks}/clean_text.py ${PROJECT_SOURCE_DIR})
add_test(NAME check.tidy
  COMMAND Python3::Interpreter ${checks}/tidy.py
    ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

# What tools/new_encoding.py writes is an encoding that works, and the tool knows it.
set(tool_parts "")
if(TARGET locus_cli)
  set(tool_parts $<TARGET_OBJECTS:locus_cli> $<TARGET_FILE:locus_measure>)
endif()
add_test(NAME check.new_encoding
  COMMAND Python3::Interpreter ${checks}/new_encoding.py ${PROJECT_SOURCE_DIR}
    ${CMAKE_CXX_COMPILER} ${PROJECT_BINARY_DIR}/new_encoding $<TARGET_FILE:locus>
    ${locus_generated} ${tool_parts}
  COMMAND_EXPAND_LISTS)
set_tests_properties(check.new_encoding PROPERTIES LABELS check TIMEOUT 600)

# Nested builds keep their folder: a second run is quick. They define no checks
# of their own, see CMakeLists.txt.
add_test(NAME check.asan
  COMMAND ${checks}/sanitize.sh ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/asan asan all .)
# What threads share: the pool, the kernels and the reference called from many
# threads at once, and the tensors below. Not ForkTest: the sanitizer ends a
# child that starts threads.
add_test(NAME check.tsan
  COMMAND ${checks}/sanitize.sh ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/tsan tsan
    "core_test reference_test terms_test kernels_test"
    "Concurren|TensorTest|BitsDoNotDepend|ParallelForTest|PoolTest|InterruptTest")

set_tests_properties(check.format check.includes check.clean_text
  PROPERTIES LABELS check TIMEOUT 120)
# Each of these uses every core by itself.
set_tests_properties(check.tidy check.asan check.tsan
  PROPERTIES LABELS check RUN_SERIAL TRUE TIMEOUT 3600)
