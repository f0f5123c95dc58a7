"""`python -m scotfree.study.hardware`: the model of pipelines beside what the thesis publishes of them."""

from scotfree.study.hardware.published import text

if __name__ == "__main__":
    print(text())
