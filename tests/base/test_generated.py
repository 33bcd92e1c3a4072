from shardwise.base.generated import define


def test_functions_of_one_text_have_namespaces_and_code_of_their_own():
    made = []
    for step in (1, 2):
        names = {"step": step}
        define("def f(x):\n    return x + step", "<f>", names)
        made.append(names["f"])
    assert [f(10) for f in made] == [11, 12]
    assert made[0].__code__ is not made[1].__code__
    assert {f.__code__.co_filename for f in made} == {"<f>"}
