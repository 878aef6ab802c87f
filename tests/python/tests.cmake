# python.*: the package from the build tree, one test per file; then as a wheel.
set(python_tests ${CMAKE_CURRENT_LIST_DIR})
set(python_path "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${python_tests}")

file(GLOB_RECURSE python_files CONFIGURE_DEPENDS RELATIVE ${python_tests}
  ${python_tests}/test_*.py)
foreach(file IN LISTS python_files)
  string(REGEX REPLACE "(^|.*/)test_(.*)[.]py$" "\\1\\2" name ${file})
  string(REPLACE "/" "." name ${name})
  add_test(NAME python.${name} COMMAND ${Python_EXECUTABLE} -B -m pytest
    -p no:cacheprovider ${python_tests}/${file})
  set_tests_properties(python.${name} PROPERTIES LABELS python
    ENVIRONMENT "${python_path}" TIMEOUT 1200)
endforeach()

add_test(NAME python.lint COMMAND ${Python_EXECUTABLE} -m ruff check --no-cache
  ${PROJECT_SOURCE_DIR})
add_test(NAME python.format COMMAND ${Python_EXECUTABLE} -m ruff format --no-cache
  --check ${PROJECT_SOURCE_DIR})
add_test(NAME python.wheel COMMAND ${python_tests}/wheel.sh
  ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/wheel ${Python_EXECUTABLE})
add_test(NAME python.types COMMAND ${python_tests}/types.sh
  ${PROJECT_SOURCE_DIR} ${Python_EXECUTABLE})
set_tests_properties(python.lint python.format python.wheel python.types
  PROPERTIES LABELS python)
set_tests_properties(python.types PROPERTIES TIMEOUT 900)
set_tests_properties(python.wheel PROPERTIES TIMEOUT 1800 COST 900)

# A minute of random calls; longer by the command itself, with --seconds.
add_test(NAME python.boundary_fuzz COMMAND ${Python_EXECUTABLE} -B
  ${python_tests}/fuzz_boundary.py --seconds 60 --seed 1)
set_tests_properties(python.boundary_fuzz PROPERTIES LABELS python
  ENVIRONMENT "${python_path}" TIMEOUT 1200)

# Long ones begin first, or one of them ends the run with a core idle.
set_tests_properties(python.peers_bench python.boundary_fuzz python.types
  PROPERTIES COST 90)
